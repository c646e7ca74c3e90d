import torch
import torch.nn as nn

from registry import register_model


class ConvNet(nn.Module):
    def __init__(self, dims=(8, 16), num_classes=1000):
        super().__init__()
        self.stem = nn.Conv2d(3, dims[0], 4, 4)
        self.down = nn.Conv2d(dims[0], dims[1], 2, 2)
        self.head = nn.Linear(dims[1], num_classes)

    def forward(self, x):
        return self.head(torch.relu(self.down(self.stem(x))).mean([-2, -1]))


@register_model
def convnet_tiny(**kwargs):
    model = ConvNet(dims=(4, 8), **kwargs)
    return model


@register_model
def convnet_base(**kwargs):
    model = ConvNet(dims=(8, 16), **kwargs)
    return model
