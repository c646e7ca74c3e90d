import argparse

import torch

from config import get_config
from models import build_model


def parse_option():
    parser = argparse.ArgumentParser('evaluation', add_help=False)
    parser.add_argument("--opts", default=None, nargs='+')
    args, unparsed = parser.parse_known_args()
    return args, get_config(args)


@torch.no_grad()
def validate(config, data_loader, model):
    model.eval()
    for idx, (images, target) in enumerate(data_loader):
        output = model(images)
        print(idx, (output.argmax(1) == target).float().mean())


def main(config):
    from data import build_loader
    model = build_model(config)
    validate(config, build_loader(config), model)


if __name__ == '__main__':
    args, config = parse_option()
    main(config)
