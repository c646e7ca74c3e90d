import pytorch_lightning as pl
import torch
from torch import nn

from net import TinyNet


class Classifier(pl.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.lr = lr
        self.model = TinyNet()
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, batch):
        images, labels = batch
        predictions = self.model(images)
        return self.criterion(predictions, labels), (predictions.argmax(1) == labels).float().mean()

    def training_step(self, batch, batch_nb):
        loss, accuracy = self.forward(batch)
        return loss

    def test_step(self, batch, batch_nb):
        loss, accuracy = self.forward(batch)
        self.log("acc/test", accuracy)

    def configure_optimizers(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.lr)
