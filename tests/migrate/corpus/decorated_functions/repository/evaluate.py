import torch
from torch import nn

from timing import timed


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


@timed
@torch.inference_mode()
def evaluate(model, loader, *, limit=None):
    def step(x, y):
        return (model(x).argmax(1) == y).sum().item()

    model.eval()
    hits = 0
    for index, (x, y) in enumerate(loader):
        if limit is not None and index >= limit:
            break
        hits += step(x, y)
    return hits


if __name__ == "__main__":
    print(evaluate(Net(), torch.load("val.pt"), limit=10))
