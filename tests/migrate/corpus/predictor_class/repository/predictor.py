import torch
from PIL import Image
from torchvision import transforms

from net import Net


class Predictor(object):
    labels = ('no', 'yes')

    def __init__(self, weights='net.pth', device='cpu'):
        self.device = torch.device(device)
        self.model = Net()
        self.model.load_state_dict(torch.load(weights, map_location=self.device))
        self.model.to(self.device).eval()
        self.transform = transforms.Compose([
            transforms.Resize((128, 128)),
            transforms.ToTensor(),
        ])

    @torch.no_grad()
    def predict(self, path):
        image = self.transform(Image.open(path).convert('RGB'))
        logits = self.model(image.unsqueeze(0).to(self.device))
        return self.labels[logits.argmax(1).item()]
