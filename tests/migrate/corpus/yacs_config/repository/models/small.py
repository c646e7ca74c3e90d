import torch.nn as nn


class SmallNet(nn.Module):
    def __init__(self, img_size=48, num_classes=1000):
        super().__init__()
        self.img_size = img_size
        self.patch = nn.Conv2d(3, 16, 8, 8)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, num_classes) if num_classes > 0 else nn.Identity()

    def forward(self, x):
        B, C, H, W = x.shape
        assert H == self.img_size and W == self.img_size
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(x).mean(1))
