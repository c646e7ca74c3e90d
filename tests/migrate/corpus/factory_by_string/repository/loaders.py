from torch.utils.data import DataLoader
import torchvision
import torchvision.transforms as transforms

CIFAR100_TRAIN_MEAN = (0.5070751592371323, 0.48654887331495095, 0.4409178433670343)
CIFAR100_TRAIN_STD = (0.2673342858792401, 0.2564384629170883, 0.27615047132568404)


def get_test_dataloader(batch_size, mean=CIFAR100_TRAIN_MEAN, std=CIFAR100_TRAIN_STD):
    transform_test = transforms.Compose([
        transforms.ToTensor(),
        transforms.Normalize(mean, std)
    ])
    return DataLoader(torchvision.datasets.CIFAR100('./data', train=False, transform=transform_test), batch_size=batch_size)
