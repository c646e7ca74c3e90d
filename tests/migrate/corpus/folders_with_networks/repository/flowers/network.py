from torch import nn


class FlowerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.fc = nn.Linear(3, 17)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))
