#test.py
#!/usr/bin/env python3

import argparse

import torch

from utils import get_network
from loaders import get_test_dataloader

if __name__ == '__main__':

    parser = argparse.ArgumentParser()
    parser.add_argument('-net', type=str, required=True, help='net type')
    parser.add_argument('-weights', type=str, required=True, help='the weights file you want to test')
    parser.add_argument('-b', type=int, default=16, help='batch size for dataloader')
    args = parser.parse_args()

    net = get_network(args)
    net.load_state_dict(torch.load(args.weights))
    print(net)
    net.eval()

    correct_1 = 0.0
    with torch.no_grad():
        for n_iter, (image, label) in enumerate(get_test_dataloader(args.b)):
            output = net(image)
            _, pred = output.topk(5, 1, largest=True, sorted=True)
            correct_1 += pred.eq(label.view(-1, 1)).float()[:, :1].sum()

    print("Top 1 err: ", 1 - correct_1 / 10000)
