import torch
from torchvision import datasets, transforms


def build_loader(config):
    size = int((256 / 224) * config.DATA.IMG_SIZE)
    t = []
    t.append(transforms.Resize(size, interpolation=3))
    t.append(transforms.CenterCrop(config.DATA.IMG_SIZE))
    t.append(transforms.ToTensor())
    dataset = datasets.ImageFolder('val', transform=transforms.Compose(t))
    return torch.utils.data.DataLoader(dataset, batch_size=64)
