import sys
from functools import partial

import torch
from torch import nn


class VariantNet(nn.Module):
    def __init__(self, width=1, num_classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, 4 * width, 3, padding=1)
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))


for width in (1, 2, 4):
    setattr(sys.modules[__name__], f'net_x{width}', partial(VariantNet, width=width))
