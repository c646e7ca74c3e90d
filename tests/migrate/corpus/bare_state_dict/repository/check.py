import torch
from torchvision import datasets, transforms
from mnist_net import Net

model = Net()
model.load_state_dict(torch.load("mnist_cnn.pt"))
model.eval()

loader = torch.utils.data.DataLoader(
    datasets.MNIST('data', train=False, transform=transforms.Compose([
        transforms.ToTensor(),
        transforms.Normalize((0.1307,), (0.3081,))
    ])), batch_size=1000)

test_loss = 0
correct = 0
with torch.no_grad():
    for data, target in loader:
        output = model(data)
        test_loss += torch.nn.functional.nll_loss(output, target, reduction='sum').item()  # sum up batch loss
        pred = output.argmax(dim=1, keepdim=True)  # get the index of the max log-probability
        correct += pred.eq(target.view_as(pred)).sum().item()

print(f'Accuracy: {correct}/{len(loader.dataset)} ({100. * correct / len(loader.dataset):.0f}%)')
