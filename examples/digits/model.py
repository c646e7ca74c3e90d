"""Small convolutional networks for 32x32 grayscale digits."""

import torch
import torch.nn as nn
import torch.nn.functional as F

__all__ = ["build_model", "mobilecnn", "resnet8", "smallcnn"]


def conv_bn(inp, oup, stride=1, groups=1, kernel_size=3):
    return nn.Sequential(
        nn.Conv2d(inp, oup, kernel_size, stride, kernel_size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(oup),
        nn.ReLU(inplace=True),
    )


class SmallCNN(nn.Module):
    def __init__(self, num_classes=10, width=24, dropout=0.2):
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(1, width, stride=2),
            conv_bn(width, 2 * width),
            nn.MaxPool2d(2),
            conv_bn(2 * width, 4 * width),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(4 * width * 4 * 4, 128),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(128, num_classes),
        )

    def forward(self, x):
        x = self.features(x)
        x = x.view(x.size(0), -1)
        return self.classifier(x)


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, planes=(16, 32, 64), num_classes=10, dropout=0.1):
        super().__init__()
        self.conv1 = nn.Conv2d(1, planes[0], 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes[0])
        self.layer1 = BasicBlock(planes[0], planes[0])
        self.layer2 = BasicBlock(planes[0], planes[1], stride=2)
        self.layer3 = BasicBlock(planes[1], planes[2], stride=2)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(planes[2], num_classes)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        out = F.adaptive_avg_pool2d(out, 1)
        out = torch.flatten(out, 1)
        return self.fc(self.dropout(out))


class MobileCNN(nn.Module):
    """Depthwise separable convolutions, for when even SmallCNN is too big."""

    def __init__(self, num_classes=10, width=32, dropout=0.1):
        super().__init__()
        layers = [conv_bn(1, width, stride=2)]
        for inp, oup, stride in [(width, 2 * width, 1), (2 * width, 4 * width, 2), (4 * width, 4 * width, 2)]:
            layers += [conv_bn(inp, inp, stride, groups=inp), conv_bn(inp, oup, kernel_size=1)]
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, x):
        x = self.avgpool(self.features(x))
        x = x.flatten(1)
        return self.fc(self.dropout(x))


def smallcnn(num_classes=10):
    return SmallCNN(num_classes=num_classes)


def resnet8(num_classes=10):
    return ResNet(num_classes=num_classes)


def mobilecnn(num_classes=10):
    return MobileCNN(num_classes=num_classes)


MODELS = {"smallcnn": smallcnn, "resnet8": resnet8, "mobilecnn": mobilecnn}


def build_model(arch, num_classes=10):
    if arch not in MODELS:
        raise ValueError(f"unknown arch {arch!r}, choose one of: {', '.join(sorted(MODELS))}")
    return MODELS[arch](num_classes=num_classes)
