"""What Lightning 2 calls otherwise than the versions before it did."""

HOOKS = {
    "training_epoch_end": ("training_step", "on_train_epoch_end"),
    "validation_epoch_end": ("validation_step", "on_validation_epoch_end"),
    "test_epoch_end": ("test_step", "on_test_epoch_end"),
}
"""A module's hooks at an epoch's end that were called with what these steps gave; and what is called then now."""
WITHOUT_INDEX = frozenset(
    (
        *("lr_scheduler_step", "optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping", "backward"),
        *("on_before_optimizer_step", "on_before_zero_grad", "toggle_optimizer", "untoggle_optimizer"),
    )
)
"""A module's hooks that are no longer handed these."""
NOT_HANDED = frozenset(("optimizer_idx", "opt_idx", "on_tpu", "using_native_amp", "using_lbfgs"))
LOADERS = {
    "fit": ("train_dataloader", "train_dataloaders"),
    "validate": ("val_dataloaders", "dataloaders"),
    "test": ("test_dataloaders", "dataloaders"),
}
"""What an argument of these methods of the trainer was called, and what it is called now."""
