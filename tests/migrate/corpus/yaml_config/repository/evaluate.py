import argparse

import torch
import yaml
from torchvision import datasets, transforms

import net


def build(cfg):
    return getattr(net, cfg['model']['name'])(num_classes=cfg['model']['num_classes'])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--config', default='configs/tiny.yaml')
    parser.add_argument('--data', default='data')
    opt = parser.parse_args()
    with open(opt.config) as f:
        cfg = yaml.safe_load(f)
    model = build(cfg).eval()
    tf = transforms.Compose([transforms.Resize((cfg['data']['size'], cfg['data']['size'])), transforms.ToTensor()])
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(opt.data, tf), batch_size=32)
    hits = 0
    for img, lbl in loader:
        with torch.inference_mode():
            hits += (model(img).argmax(-1) == lbl).sum().item()
    print(hits / len(loader.dataset))


if __name__ == '__main__':
    main()
