"""Options of every command as frozen dataclasses, and all their validation. Standard library only."""

from pygsage.config.commands import ConvertConfig, DoctorConfig, InfoConfig, PredictConfig, Split
from pygsage.config.file import read_config_file
from pygsage.config.option import option
from pygsage.config.train import BATCH_OF, LOWER_IS_BETTER, TrainConfig

__all__ = [
    "BATCH_OF",
    "LOWER_IS_BETTER",
    "ConvertConfig",
    "DoctorConfig",
    "InfoConfig",
    "PredictConfig",
    "Split",
    "TrainConfig",
    "option",
    "read_config_file",
]
