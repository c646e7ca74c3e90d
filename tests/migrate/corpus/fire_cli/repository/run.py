import fire
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=4, num_classes=5):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU())
        self.out = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.out(self.body(x).mean((2, 3)))


def evaluate(weights='net.pt', width=4, data='digits.pt'):
    net = Net(width)
    net.load_state_dict(torch.load(weights))
    net.eval()
    images, labels = torch.load(data)
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(32), labels.split(32)):
            right += (net(x).argmax(1) == y).sum().item()
    print(right / len(labels))


if __name__ == '__main__':
    fire.Fire(evaluate)
