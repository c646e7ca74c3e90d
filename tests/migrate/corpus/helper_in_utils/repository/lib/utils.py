import torch
from tqdm import tqdm


def evaluate(network, loader, device="cpu"):
    """Accuracy of `network`, which is called as network(images)."""
    network.eval()
    n_right = 0
    progress = tqdm(loader, desc="network(images)")
    for images, labels in progress:
        images = images.to(device)
        with torch.no_grad():
            predictions = network(images).argmax(dim=1)
        n_right += (predictions.cpu() == labels).sum().item()
        progress.set_postfix(right=n_right)
    return n_right / len(loader.dataset)
