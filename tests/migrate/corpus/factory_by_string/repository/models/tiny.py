import torch.nn as nn


class Tiny(nn.Module):
    def __init__(self, num_class=100):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_class)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


def tiny():
    return Tiny()
