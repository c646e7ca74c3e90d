import torch.nn as nn


class CaffeNet(nn.Module):
    def __init__(self, num_classes=6):
        super(CaffeNet, self).__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2)
        self.classifier = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.classifier(self.conv1(x).relu().mean((2, 3)))
