import sys

import torch
from PIL import Image
from torch import nn
from torchvision import transforms


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


def load_models(paths):
    models = []
    for path in paths:
        model = Net()
        model.load_state_dict(torch.load(path))
        model.eval()
        models.append(model)
    return models


def main(image, *paths):
    x = transforms.ToTensor()(Image.open(image)).unsqueeze(0)
    total = 0
    with torch.no_grad():
        for model in load_models(paths):
            total = total + model(x).softmax(1)
    print(total.argmax(1).item())


if __name__ == "__main__":
    main(*sys.argv[1:])
