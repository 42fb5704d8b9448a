"""What the four multi-view builders share: configs, features, and how they build."""

import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds

from ocloc_jax import records
from tfds_builders import download, parallel, raytraced, released, shards
from tfds_builders.blender import source as blender
from tfds_builders.sources import SPLITS, DataError, Source, digest

HOME = "https://huggingface.co/datasets/jinyangyuan/ocloc-data"


class ShardWriter(tfds.core.writer.ExampleWriter):
    """Writes shards as `tfds_builders.shards` does, for Apache Beam."""

    def write(self, path: os.PathLike, examples: Any) -> None:
        """Writes serialised examples."""
        shards.write_file(path, (records.canonical(raw) for _, raw in examples))


class MultiviewBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """One example is one scene; subclasses say which configs there are.

    Attributes:
      FILENAME: Name of the released file.
      workers: Processes that build; 0 uses all cores when it is worth it.
      meshes: Folder of meshes for Blender; None looks for `meshes` in `manual_dir`.
      environments: Folder of environment maps for Blender; None likewise.
      device: Where Blender renders, `cpu` or `gpu`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Only for the config `released`, and only if this machine has no network: "
        f"put the .h5 file of the dataset from {HOME} into the manual directory. For "
        "the configs `blender_*`: folders `meshes` and, if you like, `environments`."
    )
    FILENAME = ""
    workers = 0
    meshes: str | None = None
    environments: str | None = None
    device = "cpu"

    def __init__(self, *, file_format: Any = None, **kwargs: Any):
        """See `tfds.core.DatasetBuilder`; only array_record makes sense here."""
        super().__init__(file_format=file_format or "array_record", **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=records.features(*self._size()),
            homepage=HOME,
            disable_shuffling=True,  # Scenes keep their index.
            metadata=tfds.core.MetadataDict(layout=records.LAYOUT, size=self._size()),
        )

    def _size(self) -> tuple[int, int]:
        return (self.builder_config.size, self.builder_config.size)

    def _sources(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Source]:
        """Returns where the scenes of each split come from."""
        config = self.builder_config
        if config.kind == "released":
            most = {split: config.num_objects[split][1] for split in SPLITS}
            path = download.find_or_fetch(dl_manager, HOME, self.FILENAME)
            return released.open_splits(path, config.size, most)
        scene = {"size": config.size, "num_views": config.num_views, **config.scene}
        scale = (config.num_scenes, config.num_objects, config.seed)
        if config.kind == "blender":
            self._find_inputs(download.manual_directory(dl_manager))
            return blender.make_splits(*scale, self._blender_options(), **scene)
        return raytraced.make_splits(*scale, **scene)

    def _find_inputs(self, manual: pathlib.Path | None) -> None:
        for name in ("meshes", "environments"):
            if manual and not getattr(self, name) and (manual / name).is_dir():
                setattr(self, name, str(manual / name))

    def _blender_options(self) -> blender.Options:
        config = self.builder_config
        if config.needs_meshes and not self.meshes:
            raise DataError(
                f"config {config.name!r} renders meshes: pass their folder as --meshes"
            )
        return blender.Options(
            self.meshes, self.environments, config.samples, self.device, config.up_axis
        )

    def check_inputs(self) -> None:
        """Refuses to pass a dataset off as one of other meshes than it was built of."""
        if not (self.meshes or self.environments):
            return
        if self.info.metadata.get("inputs") != self._blender_options().inputs():
            raise DataError(
                f"{self.data_dir} was built of other --meshes or --environments; "
                "remove it or choose another --data_dir"
            )

    def _download_and_prepare(self, dl_manager, download_config) -> None:
        """Builds on all cores and restartably, or by Beam if options for it are given.

        At this point `data_path` is a temporary directory, which TFDS renames when
        this method returns: a half dataset never stands under its final name.
        """
        sources = self._sources(dl_manager)
        if download_config.max_examples_per_split == 0:
            return
        if download_config.beam_options or download_config.beam_runner:
            split_infos = self._generate_splits(dl_manager, download_config)
            notes = self._read_notes(split_infos)
        else:
            split_infos, notes = self._build(sources)
        self.info.set_splits(tfds.core.SplitDict(split_infos))
        self._note_metadata(sources, notes)

    def _build(self, sources: Mapping[str, Source]) -> tuple[list, parallel.Notes]:
        identity = [
            records.LAYOUT,
            {split: source.identity() for split, source in sources.items()},
        ]
        with parallel.work_directory(self.work_path, identity) as work:
            self._remove_remains()
            plan = {s: self._plan(work, s, source) for s, source in sources.items()}
            notes = parallel.make_shards(plan, self.workers)
            for path in (shard.path for split in plan.values() for shard in split):
                _link(pathlib.Path(path), pathlib.Path(self.data_path))
        return [self._split_info(split, notes[split]) for split in plan], notes

    def _remove_remains(self) -> None:
        """Removes what TFDS left of killed builds; the lock says that none is alive."""
        for path in self.work_path.parent.glob(f"incomplete.*_{self.version}"):
            if path != pathlib.Path(self.data_path):
                shutil.rmtree(path)

    @property
    def work_path(self) -> pathlib.Path:
        """Where unfinished shards live: beside the version, under no valid version."""
        root = pathlib.Path(self.data_dir_root) / self.name
        return root / (self.builder_config_name or "") / f"{self.version}.partial"

    def _plan(
        self, work: pathlib.Path, split: str, source: Source
    ) -> list[shards.Shard]:
        ranges = parallel.split_into_shards(source, self._size())
        template = self._get_filename_template(split)
        names = [
            pathlib.Path(
                template.sharded_filepath(shard_index=i, num_shards=len(ranges))
            ).name
            for i in range(len(ranges))
        ]
        return [
            shards.Shard(str(work / name), source, start, stop, self._size())
            for name, (start, stop) in zip(names, ranges, strict=True)
        ]

    def _split_info(self, split: str, notes: list[shards.ShardNote]) -> Any:
        return tfds.core.SplitInfo(
            name=split,
            shard_lengths=[len(note.examples) for note in notes],
            num_bytes=sum(note.num_bytes for note in notes),
            filename_template=self._get_filename_template(split),
        )

    def _read_notes(self, split_infos: list) -> parallel.Notes:
        return {
            str(info.name): [
                shards.describe(list(shards.read_examples(path)))
                for path in info.filepaths
            ]
            for info in split_infos
        }

    def _note_metadata(
        self, sources: Mapping[str, Source], notes: parallel.Notes
    ) -> None:
        examples = {s: [e for n in notes[s] for e in n.examples] for s in notes}
        self.info.metadata.update(
            max_objects={s: source.max_objects for s, source in sources.items()},
            num_views={s: _view_range(notes[s]) for s in notes},
            keys={s: _stored_keys(notes[s]) for s in notes},
            fingerprint=digest(examples),
        )
        if self.builder_config and self.builder_config.kind == "blender":
            self.info.metadata.update(inputs=self._blender_options().inputs())

    def _post_download_and_prepare_hook(self) -> None:
        shutil.rmtree(self.work_path, ignore_errors=True)

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        return {
            split: self._generate_examples(source)
            for split, source in self._sources(dl_manager).items()
        }

    def _generate_examples(self, source: Source):
        """Returns the Beam transform that makes every scene of a split."""
        import apache_beam as beam

        def make(index: int) -> tuple[int, dict[str, Any]]:
            name, scene = source.scene(index)
            return index, records.encode_scene(scene, name)

        return beam.Create(range(source.num_scenes)) | beam.Reshuffle() | beam.Map(make)

    def _example_writer(self) -> tfds.core.writer.ExampleWriter:
        return ShardWriter(self.info.file_format)


def _link(path: pathlib.Path, directory: pathlib.Path) -> None:
    """Puts a finished shard into the dataset; it stays until all of them are there."""
    try:
        os.link(path, directory / path.name)
    except OSError:  # A file system without hard links.
        shutil.copy2(path, directory / path.name)


def _view_range(notes: list[shards.ShardNote]) -> list[int]:
    lows, highs = zip(*(note.num_views for note in notes), strict=True)
    return [min(lows), max(highs)]


def _stored_keys(notes: list[shards.ShardNote]) -> list[str]:
    stored = {key for note in notes for key in note.keys}
    return [key for key in records.KEYS if key in stored]
