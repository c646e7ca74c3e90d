from torch import nn


class Network(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.c = nn.Conv2d(3, 6, 3)
        self.f = nn.Linear(6, classes)

    def forward(self, x):
        return self.f(self.c(x).relu().mean((2, 3)))
