"""Makes the tables of the keys, as `semel schema http` does. It is released, so it must never change."""

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Key",
            fields=[
                ("pk", models.CompositePrimaryKey("scope", "key", editable=False, primary_key=True, serialize=False)),
                ("scope", models.TextField()),
                ("key", models.TextField()),
                ("fingerprint", models.TextField()),
                ("token", models.BigIntegerField()),
                ("lease_until_ms", models.BigIntegerField()),
                ("expires_ms", models.BigIntegerField()),
                ("status", models.BigIntegerField(null=True)),
                ("headers", models.TextField(null=True)),
                ("body", models.BinaryField(null=True)),
            ],
            options={
                "db_table": "semel_http_keys",
                "indexes": [models.Index(fields=["expires_ms"], name="semel_http_keys_expires")],
            },
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "scope", "key", "step", editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("scope", models.TextField()),
                ("key", models.TextField()),
                ("step", models.TextField()),
                ("result", models.TextField()),
            ],
            options={"db_table": "semel_steps"},
        ),
    )
