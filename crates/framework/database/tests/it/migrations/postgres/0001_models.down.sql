DROP TABLE countries;
DROP TABLE articles;
DROP TABLE authors;
