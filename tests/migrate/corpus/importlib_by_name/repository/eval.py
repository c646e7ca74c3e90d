import argparse
import importlib

import torch


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--net', default='plain')
    p.add_argument('--ckpt', default='')
    a = p.parse_args()
    model = importlib.import_module('networks.' + a.net).Network()
    if a.ckpt:
        model.load_state_dict(torch.load(a.ckpt, map_location='cpu'))
    model.eval()
    batches = torch.load('val.pt')
    for x, y in batches:
        with torch.no_grad():
            logits = model(x)
        print((logits.argmax(1) == y).float().mean().item())


if __name__ == '__main__':
    main()
