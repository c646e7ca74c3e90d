import torch
import torch.nn as nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, stride=2)

    def forward(self, x):
        return torch.relu(self.conv(x)).mean((2, 3))


class FineTuned(nn.Module):
    def __init__(self, n_classes=4, weights=None):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(12, n_classes)
        if weights is not None:
            self.load_state_dict(torch.load(weights, map_location='cpu'), strict=False)

    def forward(self, x):
        return self.head(self.backbone(x))
