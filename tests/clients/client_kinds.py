"""Every client that the promises are held against."""

from aiokafka_client import AiokafkaClient
from client_contract import Client
from confluent_client import ConfluentClient
from kafka_python_client import KafkaPythonClient

CLIENTS: dict[str, type[Client]] = {
    client.name: client for client in (ConfluentClient, AiokafkaClient, KafkaPythonClient)
}
