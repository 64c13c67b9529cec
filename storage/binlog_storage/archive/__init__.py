"""Archives: groups in Parquet files, and a manifest that says which.

Shared by the pipeline, which writes and reads them, and the server, which holds files back until they are archived and
takes archives into stores. Only what reads parts needs pyarrow and numpy, and imports them when it does.
"""
