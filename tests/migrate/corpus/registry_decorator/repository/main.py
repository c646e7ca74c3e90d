import argparse

import torch

import nets  # noqa: F401, fills the registry
from engine import evaluate
from registry import create_model


def get_args_parser():
    parser = argparse.ArgumentParser('evaluation', add_help=False)
    parser.add_argument('--model', default='convnet_tiny', type=str, metavar='MODEL')
    parser.add_argument('--nb_classes', default=20, type=int)
    parser.add_argument('--resume', default='')
    return parser


def main(args):
    model = create_model(args.model, num_classes=args.nb_classes)
    if args.resume:
        checkpoint = torch.load(args.resume, map_location='cpu')
        model.load_state_dict(checkpoint['model'])
    data_loader = torch.utils.data.DataLoader(torch.load('val.pt'), batch_size=16)
    print(evaluate(data_loader, model, torch.device('cpu')))


if __name__ == '__main__':
    parser = argparse.ArgumentParser('evaluation script', parents=[get_args_parser()])
    main(parser.parse_args())
