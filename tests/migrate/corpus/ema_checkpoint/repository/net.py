import torch.nn as nn


class Net(nn.Module):
    def __init__(self, num_classes=9):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.head = nn.Linear(6, num_classes)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))
