"""Scattering features of MNIST and Fashion-MNIST, on which private linear models classify images at small epsilon.

    OPENBLAS_NUM_THREADS=1 python benchmarks/scattering.py --cache FOLDER --check

Tramer and Boneh (2021), "Differentially private learning needs better features (or much more data)". An image of
28 x 28 becomes 81 channels of 7 x 7: scattering of order 2 with two scales and eight orientations, as
``Scattering2D(J=2, shape=(28, 28), L=8)`` of the package kymatio has it, then group normalisation with 27 groups. Both
look at one image at a time, so nothing private is shared between records. ``--kymatio`` compares with that package
where it is installed (kymatio 0.3 needs ``scipy<1.12`` and ``numpy<2``, hence an environment of its own).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from common import load_images
from scipy import fft
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

__all__ = ["group_norm", "load_scattering", "scattering"]

Array = np.ndarray[Any, Any]
SETS = ("mnist", "fashion")
SIDE, PADDED, OUT = 28, 36, 7  # of an image, with four reflected pixels at each border, and of a channel
ANGLES = 8
CHANNELS = 1 + 2 * ANGLES + ANGLES**2
FEATURES = CHANNELS * OUT**2
GROUPS, EPS = 27, 1e-5
BLOCK = 50  # images at a time, so that what is between stays in the cache

# -- filters ------------------------------------------------------------------------------------------


def _gabor(sigma: float, theta: float, xi: float, slant: float) -> Array:
    """Return a wave of frequency ``xi`` in a Gaussian envelope, summed over five periods each way."""
    x = np.arange(-2.0 * PADDED, 3.0 * PADDED)
    along = np.cos(theta) * x[:, None] + np.sin(theta) * x
    across = np.cos(theta) * x - np.sin(theta) * x[:, None]
    wave = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2) + 1j * xi * along)
    scale = 2 * 3.1415 * sigma**2 / slant  # the digits are those of kymatio
    return np.asarray(wave.reshape(5, PADDED, 5, PADDED).sum(axis=(0, 2)) / scale)


def _wavelets(j: int) -> Array:
    """Return the Fourier transforms, which are real, of the Morlet wavelets of scale ``j``, one an angle."""
    sigma, xi, slant = 0.8 * 2**j, 0.75 * np.pi / 2**j, 4 / ANGLES
    found = []
    for step in range(ANGLES):
        theta = (ANGLES // 2 - 1 - step) * np.pi / ANGLES
        wave, envelope = (_gabor(sigma, theta, frequency, slant) for frequency in (xi, 0.0))
        found.append(fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real)
    return np.stack(found)


def _low_pass(resolution: int) -> Array:
    """Return the matrix that smooths an image of side ``PADDED / 2**resolution``, samples it and cuts off its border.

    The filter is a product of the same Gaussian in rows and columns; it acts on the flat image from the right.
    """
    side, stride, sigma = PADDED >> resolution, 4 >> resolution, 1.6
    x = np.arange(-2.0 * PADDED, 3.0 * PADDED)
    gauss = np.exp(-(x**2) / (2 * sigma**2)).reshape(5, PADDED).sum(axis=0) / np.sqrt(2 * 3.1415 * sigma**2)
    spectrum = fft.fft(gauss).real
    kept = np.r_[spectrum[: side // 2], spectrum[-(side // 2) :]]
    centres = stride * np.arange(1, OUT + 1)
    smooth = fft.ifft(kept).real[(centres[:, None] - np.arange(side)) % side]
    return np.kron(smooth, smooth).T


@lru_cache(maxsize=2)
def _filters(dtype: Any) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return the wavelets of both scales, those of the second split for ``_coarse``, and the low-pass matrices."""
    coarse = _wavelets(1).reshape(ANGLES, 2, PADDED // 2, 2, PADDED // 2).transpose(1, 3, 0, 2, 4) / 4
    low = (np.ascontiguousarray(_low_pass(0), dtype=dtype), np.ascontiguousarray(_low_pass(1), dtype=dtype))
    return _wavelets(0).astype(dtype), np.ascontiguousarray(coarse, dtype=dtype), low


# -- features -----------------------------------------------------------------------------------------


def _coarse(spectrum: Array, wavelets: Array) -> Array:
    """Return the moduli of all convolutions with the wavelets of the second scale, every other pixel of each."""
    half = PADDED // 2
    parts = [
        (i, k, spectrum[:, None, i * half : (i + 1) * half, k * half : (k + 1) * half]) for i in (0, 1) for k in (0, 1)
    ]
    total = parts[0][2] * wavelets[0, 0]
    for i, k, part in parts[1:]:  # sampling in space is folding in frequency
        total += part * wavelets[i, k]
    return np.abs(fft.ifft2(total, overwrite_x=True))


def _smooth(signal: Array, matrix: Array) -> Array:
    """Return the samples of smoothed images, channels x OUT x OUT for each."""
    flat = signal.reshape(-1, len(matrix)) @ matrix
    return np.asarray(flat.reshape(len(signal), -1, OUT, OUT))


def scattering(images: Array) -> Array:
    """Return the scattering transform of images.

    Parameters
    ----------
    images : array of shape (n, 28, 28), float32 or float64
        Tramer and Boneh have pixels in [0, 1].

    Returns
    -------
    array of shape (n, 81, 7, 7), of the same precision
        Channel 0 is the smoothed image; 1 to 8 are the orientations of the finer scale, 9 to 16 those of the coarser;
        then come the eight coarser orientations of the modulus of each finer one.
    """
    fine, coarse, low = _filters(images.dtype)
    pixel = np.pad(np.arange(SIDE), (PADDED - SIDE) // 2, mode="reflect")
    padded = images[:, pixel[:, None], pixel]
    spectrum = fft.fft2(padded)
    out = np.empty((len(images), CHANNELS, OUT, OUT), dtype=images.dtype)
    out[:, :1] = _smooth(padded, low[0])
    out[:, 1 + ANGLES : 1 + 2 * ANGLES] = _smooth(_coarse(spectrum, coarse), low[1])
    for angle in range(ANGLES):
        modulus = np.abs(fft.ifft2(spectrum * fine[angle], overwrite_x=True))
        out[:, 1 + angle : 2 + angle] = _smooth(modulus, low[0])
        start = 1 + (2 + angle) * ANGLES
        out[:, start : start + ANGLES] = _smooth(_coarse(fft.fft2(modulus), coarse), low[1])
    return out


def group_norm(channels: Array) -> Array:
    """Return the channels with mean 0 and variance 1 in each of 27 groups of three of each image, as torch does it."""
    groups = channels.reshape(len(channels), GROUPS, -1)
    centred = groups - groups.mean(axis=2, keepdims=True)
    variance = np.square(centred).mean(axis=2, keepdims=True)
    return np.asarray((centred / np.sqrt(variance + EPS)).reshape(channels.shape))


# -- files --------------------------------------------------------------------------------------------


def _write(path: Path, images: Array) -> float:
    """Write the features of all images to ``path``, which appears when it is complete; return the seconds."""
    draft = path.with_suffix(".draft.tmp")
    features = np.lib.format.open_memmap(draft, mode="w+", dtype=np.float32, shape=(len(images), FEATURES))
    begin = time.perf_counter()
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK].astype(np.float32) / 255
        features[start : start + BLOCK] = group_norm(scattering(block)).reshape(len(block), -1)
        done = start + len(block)
        if done % 5000 == 0 or done == len(images):
            seconds = time.perf_counter() - begin
            left = seconds * (len(images) / done - 1)
            print(f"{path.stem}: {done:,} of {len(images):,}, {seconds:.0f} s, {left:.0f} s left", file=sys.stderr)
    features.flush()
    draft.replace(path)
    return time.perf_counter() - begin


def load_scattering(name: str, folder: str | Path) -> tuple[Array, Array, Array, Array]:
    """Return ``(X_train, y_train, X_test, y_test)``; features are memory-mapped, and made where ``folder`` has none.

    Parameters
    ----------
    name : {"mnist", "fashion"}
    folder : path
        ``NAME-train.npy``, ``NAME-train-y.npy`` and the same of ``test`` are there, 1.1 GB a set. Features are
        float32, 3,969 a row, and no row is longer than the root of that, 63, whatever the image; labels are 0 to 9.
    """
    folder = Path(folder)
    paths = [folder / f"{name}-{part}.npy" for part in ("train", "train-y", "test", "test-y")]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        images = load_images(name)
        for path, array in zip(paths, images, strict=True):
            if path.exists():
                continue
            if path.stem.endswith("-y"):
                np.save(path, array.astype(np.int64))
            else:
                print(f"{path.name}: {_write(path, array):.0f} s")
    X, y, X_test, y_test = (np.load(path, mmap_mode=None if "-y" in path.stem else "r") for path in paths)
    return X, y, X_test, y_test


# -- checks -------------------------------------------------------------------------------------------


def check(name: str, folder: Path, rows: int = 20_000) -> None:
    """Print the test accuracy of a logistic regression without privacy on the first rows."""
    X, y, X_test, y_test = load_scattering(name, folder)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=0.01, max_iter=100).fit(np.array(X[:rows]), y[:rows])
    seconds = time.perf_counter() - begin
    print(
        f"{name}: test accuracy {100 * model.score(X_test, y_test):.2f} % without privacy, {rows:,} training rows, "
        f"{model.n_iter_[0]} iterations, {seconds:.0f} s"
    )


def compare(name: str, count: int = 20) -> None:
    """Print the largest difference to kymatio on the first test images, in both precisions, and the largest value."""
    from kymatio.numpy import Scattering2D

    theirs = Scattering2D(J=2, shape=(SIDE, SIDE), L=ANGLES)
    for dtype in (np.float32, np.float64):
        images = load_images(name)[2][:count].astype(dtype) / dtype(255)
        mine, reference = scattering(images), theirs(images)
        normed = np.abs(group_norm(mine) - group_norm(reference)).max()
        print(
            f"{name}, {np.dtype(dtype).name}: differs from kymatio by at most {np.abs(mine - reference).max():.1e} "
            f"(largest value {reference.max():.2f}), by {normed:.1e} after group normalisation"
        )


def main() -> None:
    """Make the features that are missing, and check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(tempfile.gettempdir()) / "dpskl-scattering"
    parser.add_argument("--cache", type=Path, default=default, help=f"the folder of the features ({default})")
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--check", action="store_true", help="fit a logistic regression without privacy")
    parser.add_argument("--kymatio", action="store_true", help="only compare with kymatio on 20 images")
    options = parser.parse_args()
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for name in options.data:
            try:
                if options.kymatio:
                    compare(name)
                elif options.check:
                    check(name, options.cache)
                else:
                    load_scattering(name, options.cache)
            except FileNotFoundError as error:
                print(f"{name}: skipped, the images cannot be read from $DPSKL_DATA or ../shared/data ({error})")


if __name__ == "__main__":
    main()
