// The application with Gin, database/sql and html/template: gin PORT [DATABASE].
package main

import (
	"database/sql"
	_ "embed"
	"errors"
	"html/template"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	_ "github.com/go-sql-driver/mysql"
)

//go:embed user.html
var view string

// What the client reads.
func language(c *gin.Context) {
	found := "en"
	if strings.HasPrefix(c.GetHeader("Accept-Language"), "zh") {
		found = "zh"
	}
	c.Set("language", found)
	c.Next()
}

func servedBy(c *gin.Context) {
	c.Header("X-Served-By", "bench")
	c.Next()
}

func hello(c *gin.Context) {
	format := "Hello, %s!"
	if c.GetString("language") == "zh" {
		format = "你好，%s！"
	}
	c.String(http.StatusOK, format, c.Param("name"))
}

type swift struct {
	Id       uint32 `json:"id"`
	Name     string `json:"name"`
	Language string `json:"language"`
}

func asJson(c *gin.Context) {
	id, err := strconv.ParseUint(c.Param("id"), 10, 32)
	if err != nil {
		c.String(http.StatusBadRequest, "no number")
		return
	}
	c.JSON(http.StatusOK, swift{uint32(id), "Apus apus", c.GetString("language")})
}

type item struct {
	Product  string `json:"product" binding:"min=1,max=40,ascii"`
	Quantity uint32 `json:"quantity" binding:"min=1,max=100"`
	Cents    uint64 `json:"cents" binding:"min=1,max=1000000"`
}

type order struct {
	Customer string `json:"customer" binding:"min=1,max=80"`
	Email    string `json:"email" binding:"email,max=254"`
	Items    []item `json:"items" binding:"min=1,max=20,dive"`
}

type receipt struct {
	Customer string   `json:"customer"`
	Email    string   `json:"email"`
	Products []string `json:"products"`
	Cents    uint64   `json:"cents"`
	Language string   `json:"language"`
}

func orders(c *gin.Context) {
	var order order
	if err := c.ShouldBindJSON(&order); err != nil {
		c.String(http.StatusUnprocessableEntity, err.Error())
		return
	}
	made := receipt{order.Customer, order.Email, make([]string, 0, len(order.Items)), 0, c.GetString("language")}
	for _, item := range order.Items {
		made.Products = append(made.Products, item.Product)
		made.Cents += uint64(item.Quantity) * item.Cents
	}
	c.JSON(http.StatusOK, made)
}

type user struct {
	Id                  int64
	Name, Email, Joined string
}

type page struct {
	Language string
	User     user
}

func users(find *sql.Stmt) gin.HandlerFunc {
	return func(c *gin.Context) {
		id, err := strconv.ParseInt(c.Param("id"), 10, 64)
		if err != nil {
			c.String(http.StatusBadRequest, "no number")
			return
		}
		var found user
		row := find.QueryRowContext(c.Request.Context(), id)
		err = row.Scan(&found.Id, &found.Name, &found.Email, &found.Joined)
		if errors.Is(err, sql.ErrNoRows) {
			c.String(http.StatusNotFound, "there is no such user")
			return
		}
		if err != nil {
			c.String(http.StatusInternalServerError, err.Error())
			return
		}
		c.HTML(http.StatusOK, "user.html", page{c.GetString("language"), found})
	}
}

func pages(routes *gin.Engine, address string) {
	database, err := sql.Open("mysql", address)
	if err != nil {
		log.Fatal(err)
	}
	database.SetMaxOpenConns(10)
	database.SetMaxIdleConns(10)
	find, err := database.Prepare("SELECT id, name, email, joined FROM users WHERE id = ?")
	if err != nil {
		log.Fatal(err)
	}
	routes.SetHTMLTemplate(template.Must(template.New("user.html").Parse(view)))
	routes.GET("/users/:id", users(find))
}

func main() {
	gin.SetMode(gin.ReleaseMode)
	routes := gin.New()
	routes.Use(language, servedBy)
	routes.GET("/hello/:name", hello)
	routes.GET("/json/:id", asJson)
	routes.POST("/orders", orders)
	if len(os.Args) > 2 {
		pages(routes, os.Args[2])
	}
	log.Fatal(routes.Run("127.0.0.1:" + os.Args[1]))
}
