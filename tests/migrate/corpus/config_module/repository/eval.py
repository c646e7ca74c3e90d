import torch
from torchvision import transforms
from torchvision.datasets import ImageFolder

import cfg
from arch.cnn import CNN


def get_model():
    model = CNN(cfg.WIDTH, cfg.NUM_CLASSES)
    model.load_state_dict(torch.load(cfg.WEIGHTS, map_location="cpu"))
    return model.eval()


def run():
    model = get_model()
    loader = torch.utils.data.DataLoader(
        ImageFolder("val", transforms.Compose([transforms.Resize((cfg.SIZE, cfg.SIZE)), transforms.ToTensor()])), 16)
    with torch.no_grad():
        for x, y in loader:
            yield (model(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    print(list(run()))
