import torch.nn as nn


class Net(nn.Module):
    def __init__(self, nclass=8):
        super().__init__()
        self.a = nn.Conv2d(3, 5, 3)
        self.b = nn.Linear(5, nclass)

    def forward(self, img):
        return self.b(self.a(img).relu().mean((-1, -2)))
