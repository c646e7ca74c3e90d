import torch


@torch.no_grad()
def evaluate(data_loader, model, device):
    # switch to evaluation mode
    model.eval()
    total = n = 0
    for batch in data_loader:
        images = batch[0]
        target = batch[-1]
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        output = model(images)
        total += (output.argmax(1) == target).sum().item()
        n += len(target)
    return total / n
