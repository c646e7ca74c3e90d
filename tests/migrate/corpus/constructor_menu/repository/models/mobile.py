import torch.nn as nn


class Mobile(nn.Module):
    def __init__(self, num_classes=10):
        super(Mobile, self).__init__()
        self.conv = nn.Conv2d(3, 8, 3, groups=1)
        self.linear = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.linear(self.conv(x).mean((2, 3)))
