"""The data source `binlog`."""

from __future__ import annotations

from typing import TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from binlog_pipeline.errors import BadOption
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.spark.batch_reader import BinlogReader
from binlog_pipeline.spark.filtering_reader import FilteringReader
from binlog_pipeline.spark.stream_reader import BinlogStreamReader
from binlog_pipeline.views import View, open_view

_Reader = TypeVar("_Reader", BinlogReader, BinlogStreamReader)


class BinlogDataSource(DataSource):
    """`spark.read.format("binlog")` and `spark.readStream.format("binlog")`. docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        return "binlog"

    def schema(self) -> StructType:
        return from_arrow_schema(self._view(self._options()).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._made(BinlogReader, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self._options().view == "files":
            raise BadOption("view files is what there is at one time: it cannot be streamed")
        return self._made(BinlogStreamReader, schema)

    def _made(self, kind: type[_Reader], schema: StructType) -> _Reader:
        options = self._options()
        view = self._view(options)
        unknown = [name for name in schema.names if name not in view.schema.names]
        if unknown:
            raise BadOption(
                f"the view has no column {', '.join(unknown)}; it has {', '.join(view.schema.names)}"
            )
        made = from_arrow_schema(view.schema)
        for wanted in schema.fields:
            if wanted.dataType != made[wanted.name].dataType:
                raise BadOption(
                    f"column {wanted.name} is {made[wanted.name].dataType.simpleString()}, "
                    f"not {wanted.dataType.simpleString()}. If the table was changed since it was loaded, load it again"
                )
        return kind(options, view, schema.names)

    def _options(self) -> SourceOptions:
        return SourceOptions.parse(dict(self.options))

    def _view(self, options: SourceOptions) -> View:
        return open_view(options, open_source(options))


class FilteringDataSource(BinlogDataSource):
    """The same in a session that pushes filters down: Spark refuses readers that take them elsewhere."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._made(FilteringReader, schema)
