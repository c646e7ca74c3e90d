import torch
import torch.nn as nn


class TinyNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2)
        self.head = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.head(torch.relu(self.stem(x)).mean(dim=(2, 3)))
