import torch.nn as nn
import torch.nn.functional as F

__all__ = ["ResNet", "resnet8", "resnet14"]


def conv3x3(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, planes):
        super(BasicBlock, self).__init__()
        self.conv = conv3x3(planes, planes)
        self.bn = nn.BatchNorm2d(planes)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)) + x)


class ResNet(nn.Module):
    def __init__(self, block, depth, num_classes=10):
        super(ResNet, self).__init__()
        self.conv1 = conv3x3(3, 8, 2)
        self.layer = nn.Sequential(*[block(8) for _ in range(depth)])
        self.linear = nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.layer(F.relu(self.conv1(x)))
        x = F.avg_pool2d(x, x.size()[3])
        return self.linear(x.view(x.size(0), -1))


def resnet8(**kwargs):
    return ResNet(BasicBlock, 1, **kwargs)


def resnet14(**kwargs):
    return ResNet(BasicBlock, 2, **kwargs)
