import torch.nn as nn


class LeNet(nn.Module):
    def __init__(self, num_class=100):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.classifier = nn.Linear(96, num_class)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def lenet():
    return LeNet()
