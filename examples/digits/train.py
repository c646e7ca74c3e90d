import argparse
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import CLASSES, DigitsDataset, eval_transform, train_transform
from model import MODELS, build_model


def get_args():
    parser = argparse.ArgumentParser(description="Train a digit classifier")
    parser.add_argument("--data", default="data", help="folder with train/, val/ and test/")
    parser.add_argument("--arch", default="smallcnn", choices=sorted(MODELS))
    parser.add_argument("--epochs", default=15, type=int)
    parser.add_argument("--batch-size", default=64, type=int)
    parser.add_argument("--lr", default=3e-3, type=float)
    parser.add_argument("--weight-decay", default=0.01, type=float)
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--checkpoint-dir", default="checkpoints")
    parser.add_argument("--resume", default="", help="checkpoint to continue from, e.g. checkpoints/last.pth")
    parser.add_argument("--seed", default=0, type=int)
    return parser.parse_args()


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train_one_epoch(model, loader, criterion, optimizer, device):
    model.train()
    total_loss, correct, total = 0.0, 0, 0
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

        total_loss += loss.item() * targets.size(0)
        correct += (outputs.argmax(dim=1) == targets).sum().item()
        total += targets.size(0)
    return total_loss / total, 100.0 * correct / total


@torch.no_grad()
def validate(model, loader, criterion, device):
    model.eval()
    total_loss, correct, total = 0.0, 0, 0
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        outputs = model(images)
        total_loss += criterion(outputs, targets).item() * targets.size(0)
        correct += (outputs.argmax(dim=1) == targets).sum().item()
        total += targets.size(0)
    return total_loss / total, 100.0 * correct / total


def save_checkpoint(state, path):
    tmp = path + ".tmp"
    torch.save(state, tmp)
    os.replace(tmp, path)


def main():
    args = get_args()
    seed_everything(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_set = DigitsDataset(args.data, "train", train_transform)
    val_set = DigitsDataset(args.data, "val", eval_transform)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=256, num_workers=args.workers)

    model = build_model(args.arch, num_classes=len(CLASSES))
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    model = model.to(device)

    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    start_epoch, best_acc = 0, 0.0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device)
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        start_epoch, best_acc = checkpoint["epoch"] + 1, checkpoint["best_acc"]
        print(f"Resumed from {args.resume} (epoch {start_epoch})")

    os.makedirs(args.checkpoint_dir, exist_ok=True)
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{args.arch}: {n_params} parameters, {len(train_set)} training and {len(val_set)} validation images, {device}")

    for epoch in range(start_epoch, args.epochs):
        seed_everything(args.seed + epoch)  # so that a resumed run goes on like an uninterrupted one
        start = time.time()
        train_loss, train_acc = train_one_epoch(model, train_loader, criterion, optimizer, device)
        val_loss, val_acc = validate(model, val_loader, criterion, device)
        scheduler.step()
        print(
            f"Epoch [{epoch + 1}/{args.epochs}] train loss {train_loss:.4f} acc {train_acc:.2f}%  "
            f"val loss {val_loss:.4f} acc {val_acc:.2f}%  {time.time() - start:.1f}s",
            flush=True,
        )

        is_best = val_acc >= best_acc
        best_acc = max(val_acc, best_acc)
        state = {"state_dict": model.state_dict(), "epoch": epoch, "arch": args.arch, "best_acc": best_acc}
        if is_best:
            save_checkpoint(state, os.path.join(args.checkpoint_dir, "best.pth"))
        state.update(optimizer=optimizer.state_dict(), scheduler=scheduler.state_dict())
        save_checkpoint(state, os.path.join(args.checkpoint_dir, "last.pth"))

    print(f"Best validation accuracy: {best_acc:.2f}%")


if __name__ == "__main__":
    main()
