import sys
from collections import OrderedDict

import torch
from PIL import Image
from torchvision import transforms

from net import Net

CLASSES = ['ant', 'bee', 'crow', 'duck', 'eel', 'frog', 'goat', 'hen']


def load(path):
    net = Net(len(CLASSES))
    state = torch.load(path, map_location='cpu')['state_dict']
    new_state = OrderedDict()
    for k, v in state.items():
        new_state[k.replace('module.', '')] = v
    net.load_state_dict(new_state)
    return net.eval()


def main(image, weights='best.pth.tar'):
    net = load(weights)
    preprocess = transforms.Compose([
        transforms.Resize((64, 64)),
        transforms.ToTensor(),
    ])
    x = preprocess(Image.open(image).convert('RGB'))[None]
    with torch.no_grad():
        y = net(x)
    print(CLASSES[int(y.argmax())])


if __name__ == '__main__':
    main(*sys.argv[1:])
