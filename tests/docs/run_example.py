#!/usr/bin/env python3
"""Runs a program and checks what it prints: run_example.py [--expect REGEX ...] -- PROGRAM [WORD ...]

Passes when the program ends with 0 and its standard output holds each pattern.
"""
import argparse
import re
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--expect", action="append", default=[])
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    result = subprocess.run(arguments.command, stdout=subprocess.PIPE, text=True)
    print(result.stdout, end="")
    missing = [pattern for pattern in arguments.expect if not re.search(pattern, result.stdout)]
    for pattern in missing:
        print(f"FAILED: the output holds nothing like: {pattern}")
    if result.returncode != 0:
        print(f"FAILED: exit code {result.returncode}")
    return 1 if missing or result.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
