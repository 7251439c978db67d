"""The web app: pages and a JSON API over the same questions and answers as the command line."""
