import pytorch_lightning as pl
import torch

from module import Classifier


def main():
    trainer = pl.Trainer(max_epochs=1)
    model = Classifier()
    trainer.fit(model, torch.utils.data.DataLoader(torch.load('train.pt'), batch_size=8))


if __name__ == '__main__':
    main()
