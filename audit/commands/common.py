"""What every command shares, as the commands import it: statuses, mistakes, JSON, progress."""

from rlt_fsm.command_output import Status, mistakes_in_one_sentence, print_json, print_text
from rlt_fsm.progress_line import ProgressLine

__all__ = ["ProgressLine", "Status", "mistakes_in_one_sentence", "print_json", "print_text"]
