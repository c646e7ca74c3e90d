import math

import torch
import torchvision.transforms as T
from torchvision.datasets import ImageFolder

from net import Net

img_size = 56
crop_pct = 0.875
scale_size = int(math.floor(img_size / crop_pct))
mean = [x / 255 for x in [125.3, 123.0, 113.9]]
std = [x / 255 for x in [63.0, 62.1, 66.7]]


def build_transform(is_train):
    if is_train:
        return T.Compose([T.RandomResizedCrop(img_size), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(mean, std)])
    return T.Compose([T.Resize(scale_size), T.CenterCrop(img_size), T.ToTensor(), T.Normalize(mean, std)])


def main():
    model = Net()
    model.eval()
    loader = torch.utils.data.DataLoader(ImageFolder('val', build_transform(False)), batch_size=50)
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += model(images).argmax(1).eq(labels).sum().item()
    print(correct)


if __name__ == '__main__':
    main()
