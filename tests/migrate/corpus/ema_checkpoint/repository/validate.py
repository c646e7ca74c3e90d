import argparse

import torch

from net import Net


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--checkpoint', type=str, required=True)
    parser.add_argument('--use-ema', action='store_true', dest='use_ema')
    return parser.parse_args()


def main():
    args = get_args()
    model = Net()
    checkpoint = torch.load(args.checkpoint, map_location='cpu')
    state_dict = checkpoint['model_ema'] if args.use_ema else checkpoint['model']
    model.load_state_dict(state_dict)
    model.eval()
    top1 = []
    with torch.no_grad():
        for images, target in torch.load('val_batches.pt'):
            logits = model(images)
            top1.append((logits.argmax(1) == target).float().mean())
    print(torch.stack(top1).mean())


if __name__ == '__main__':
    main()
