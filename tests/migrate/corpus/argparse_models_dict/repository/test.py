import argparse

import torch
import torch.nn.parallel
import torchvision.datasets as datasets
import torchvision.transforms as transforms

import models

model_names = sorted(name for name in models.__dict__
    if name.islower() and not name.startswith("__")
    and callable(models.__dict__[name]))

parser = argparse.ArgumentParser(description='CIFAR evaluation')
parser.add_argument('data', metavar='DIR', help='path to dataset')
parser.add_argument('--arch', '-a', metavar='ARCH', default='resnet14', choices=model_names)
parser.add_argument('--resume', default='', type=str, metavar='PATH')


def main():
    args = parser.parse_args()
    model = torch.nn.DataParallel(models.__dict__[args.arch]())
    if args.resume:
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint['state_dict'])
    val_loader = torch.utils.data.DataLoader(
        datasets.CIFAR10(args.data, train=False, transform=transforms.Compose([
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ])), batch_size=128, shuffle=False)
    model.eval()
    correct = 0
    with torch.no_grad():
        for i, (input, target) in enumerate(val_loader):
            output = model(input)
            correct += (output.max(1)[1] == target).sum().item()
    print('Prec@1 {:.3f}'.format(correct / len(val_loader.dataset)))


if __name__ == '__main__':
    main()
