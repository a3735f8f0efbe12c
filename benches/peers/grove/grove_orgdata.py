"""A Grove connector for the audit log, and an output that sends it to an OTLP collector over HTTP."""
import json
import time
from datetime import datetime

import requests
from grove.connectors import BaseConnector
from grove.constants import CHRONOLOGICAL
from grove.exceptions import AccessException, NotFoundException, RequestFailedException
from grove.outputs import BaseOutput
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

TIMEOUT = 30


def add(attributes, key, value):
    attribute = attributes.add(key=key)
    attribute.value.string_value = value


class Connector(BaseConnector):
    CONNECTOR = "orgdata_audit"
    # Grove reads the pointer from the last entry of a page, so the page's cursor is added to that entry.
    POINTER_PATH = "_cursor"
    LOG_ORDER = CHRONOLOGICAL

    # Grove makes a connector for each run; the connection is kept.
    session = requests.Session()

    def page(self, cursor):
        query = {"limit": 1000, "after": cursor or None}
        headers = {"X-API-Key": self.key}
        try:
            response = self.session.get(
                f"{self.configuration.url}/v1/audit-logs", params=query, headers=headers, timeout=TIMEOUT
            )
            response.raise_for_status()
            return response.json()
        except (requests.RequestException, ValueError) as error:
            raise RequestFailedException(error)

    def collect(self):
        try:
            # A kill while Grove's file cache writes the pointer leaves it empty.
            cursor = self.pointer or self.pointer_previous
        except NotFoundException:
            # Grove asks for a pointer when it saves the first page.
            cursor = self.pointer = ""
        while True:
            page = self.page(cursor)
            cursor, entries = page["startCursor"], page["items"][::-1]
            if not entries:
                return
            entries[-1]["_cursor"] = cursor
            self.save(entries)
            if not page["hasPrevious"]:
                return


class Output(BaseOutput):
    class Configuration(BaseOutput.Configuration):
        url: str

        class Config:
            env_prefix = "GROVE_OUTPUT_OTLP_HTTP_"
            case_insensitive = True

    session = requests.Session()

    def serialize(self, data, metadata={}):
        request = ExportLogsServiceRequest()
        resource = request.resource_logs.add()
        add(resource.resource.attributes, "service.name", "grove")
        records, observed = resource.scope_logs.add().log_records, time.time_ns()
        for entry in data:
            entry.pop("_cursor", None)
            created = round(datetime.fromisoformat(entry["createdAt"]).timestamp() * 1000) * 1_000_000
            record = records.add(time_unix_nano=created, observed_time_unix_nano=observed, severity_number=9)
            record.body.string_value = json.dumps(entry, separators=(",", ":"))
            add(record.attributes, "log.record.uid", entry["id"])
            add(record.attributes, "orgdata.activity.type", entry["type"])
        return request.SerializeToString()

    def submit(self, data, **_):
        headers = {"Content-Type": "application/x-protobuf"}
        try:
            self.session.post(self.config.url, data=data, headers=headers, timeout=TIMEOUT).raise_for_status()
        except requests.RequestException as error:
            raise AccessException(error)
