"""EfficientNet-Lite0 (https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite), for 224x224 images."""

from torch import nn

# repeats, kernel, stride, expansion, output channels
STAGES = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]


class SameConv2d(nn.Conv2d):
    """Pads as TensorFlow's "SAME" does: with a stride, one pixel more at the end."""

    def forward(self, x):
        pads = []
        for size, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(nn.functional.pad(x, pads) if any(pads) else x)


def batch_norm(channels):
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class MBConvBlock(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        self.expands = expansion != 1
        self.skips = stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv = SameConv2d(inputs, hidden, 1, bias=False)
            self._bn0 = batch_norm(hidden)
        self._depthwise_conv = SameConv2d(hidden, hidden, kernel, stride, groups=hidden, bias=False)
        self._bn1 = batch_norm(hidden)
        self._project_conv = SameConv2d(hidden, outputs, 1, bias=False)
        self._bn2 = batch_norm(outputs)
        self._relu = nn.ReLU6()

    def forward(self, inputs):
        x = inputs
        if self.expands:
            x = self._relu(self._bn0(self._expand_conv(x)))
        x = self._relu(self._bn1(self._depthwise_conv(x)))
        x = self._bn2(self._project_conv(x))
        return x + inputs if self.skips else x


class EfficientNetLite0(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, stride=2, bias=False)
        self._bn0 = batch_norm(32)
        blocks, channels = [], 32
        for repeats, kernel, stride, expansion, outputs in STAGES:
            for i in range(repeats):
                blocks.append(MBConvBlock(channels, outputs, kernel, stride if i == 0 else 1, expansion))
                channels = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv2d(channels, 1280, 1, bias=False)
        self._bn1 = batch_norm(1280)
        self._dropout = nn.Dropout(0.2)
        self._fc = nn.Linear(1280, num_classes)
        self._relu = nn.ReLU6()

    def forward(self, x):
        x = self._relu(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = self._relu(self._bn1(self._conv_head(x)))
        return self._fc(self._dropout(x.mean((2, 3))))
