import torch

from model import Net


def test():
    net = Net()
    net.load_state_dict(torch.load('ckpt.t7')['net'])
    net.eval()
    with torch.no_grad():
        for inputs, targets in torch.load('test.pt'):
            outputs = net(inputs)
            print((outputs.argmax(1) == targets).sum())


if __name__ == '__main__':
    test()
