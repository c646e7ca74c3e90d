import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2
from torch.utils.data import Dataset

valid_aug = A.Compose([A.Resize(96, 96), A.Normalize(), ToTensorV2()])
train_aug = A.Compose([A.RandomResizedCrop(96, 96), A.HorizontalFlip(), A.Normalize(), ToTensorV2()])


class Images(Dataset):
    def __init__(self, files, labels, aug):
        self.files, self.labels, self.aug = files, labels, aug

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = cv2.cvtColor(cv2.imread(self.files[index]), cv2.COLOR_BGR2RGB)
        return self.aug(image=image)["image"], self.labels[index]
