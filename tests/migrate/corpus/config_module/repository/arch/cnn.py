import torch
from torch import nn


class CNN(nn.Module):
    def __init__(self, width, out_dim):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 5)
        self.fc = nn.Linear(width, out_dim)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
